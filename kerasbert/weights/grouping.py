"""The groups of layers that an ALBERT has in a file."""

from kerasbert.depth import groups_for_separate_layers


def config_of_file(config):
    """Returns the configuration with a group for every layer if some block was un-shared."""
    if config.family != "albert" or config.projects_first:
        return config
    groups = config.sharing_groups
    if is_unshared(config):
        groups = groups_for_separate_layers(config.num_hidden_layers)
    return config.replace(num_hidden_groups=groups)


def is_unshared(config):
    """Whether some block of an ALBERT has copies."""
    return config.unshare is not None or config.unshare_layers is not None
