"""What optimizers have to do otherwise under the strategies of `tf.distribute`."""

from keras import ops

from kerasbert.errors import ConfigError


class ReplicaAware:
    """Clips the sum of the replicas' gradients, and accumulates gradients under a strategy.

    Keras clips each replica's part of the gradients. Its accumulation updates inside of a
    condition, where replicas cannot wait for each other; here every batch computes an update,
    and all batches but the last of a round write nothing of it.
    """

    @property
    def _strategy(self):
        # Only TensorFlow's optimizers have one; what it is if there is none has this name.
        strategy = getattr(self, "_distribution_strategy", None)
        return None if "Default" in type(strategy).__name__ else strategy

    def build(self, variables):
        """Makes the slots; refuses what Keras' accumulation has and this one does not."""
        if self._is_gated and self.ema_overwrite_frequency:
            raise ConfigError(
                f"ema_overwrite_frequency={self.ema_overwrite_frequency} with "
                "gradient_accumulation_steps under a strategy of tf.distribute.\n"
                "Expected None.\nEvaluate the average with keras.callbacks.SwapEMAWeights."
            )
        super().build(variables)

    def _summed(self, grads):
        """Returns the sum over the replicas divided by their number: Keras sums it again."""
        pairs = self._all_reduce_sum_gradients([(gradient, None) for gradient in grads])
        replicas = self._strategy.num_replicas_in_sync
        return [gradient / replicas for gradient, _ in pairs]

    def _clip_gradients(self, grads):
        if self._strategy is None or not (self.clipnorm or self.clipvalue or self.global_clipnorm):
            return super()._clip_gradients(grads)
        replicas = self._strategy.num_replicas_in_sync
        clipped = super()._clip_gradients([gradient * replicas for gradient in self._summed(grads)])
        return [gradient / replicas for gradient in clipped]

    def _backend_apply_gradients(self, grads, trainable_variables):
        rounds = self.gradient_accumulation_steps
        if self._strategy is None or not rounds:
            super()._backend_apply_gradients(grads, trainable_variables)
            return
        indexes = [self._get_variable_index(variable) for variable in trainable_variables]
        sums = [self._accumulated_gradients[index] for index in indexes]
        # Every replica keeps the same sum, so that any of them can be saved.
        self._backend_increment_gradient_accumulators(self._summed(grads), sums)
        means = [total / rounds for total in sums]
        self._backend_update_step(
            self._clip_gradients(means), trainable_variables, self.learning_rate
        )
        kept = ops.logical_not(self._is_due())
        left = [ops.multiply(total, ops.cast(kept, total.dtype) - 1) for total in sums]
        self._backend_increment_gradient_accumulators(left, sums)
        if self.use_ema:
            self._update_model_variables_moving_average(self._trainable_variables)

    def _is_due(self):
        """Whether this batch is the last of a round."""
        return ops.equal((self._iterations + 1) % self.gradient_accumulation_steps, 0)

    @property
    def _is_gated(self):
        return self._strategy is not None and bool(self.gradient_accumulation_steps)

    def assign(self, variable, value):
        """Sets a variable or slot, if an update is due."""
        if self._is_gated:
            value = ops.where(self._is_due(), value, variable)
        super().assign(variable, value)

    def assign_add(self, variable, value):
        """Adds to a variable or slot, if an update is due."""
        if self._is_gated:
            value = ops.where(self._is_due(), value, ops.zeros_like(value))
        super().assign_add(variable, value)

    def assign_sub(self, variable, value):
        """Subtracts from a variable or slot, if an update is due."""
        if self._is_gated:
            value = ops.where(self._is_due(), value, ops.zeros_like(value))
        super().assign_sub(variable, value)
