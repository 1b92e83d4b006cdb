"""The errors that the main job raises for a mistake of the user's."""


class TrainError(ValueError):
    """A configuration, run folder or checkpoint that cannot be used; the message is one line."""


class ToldElsewhereError(Exception):
    """The first rank met a mistake of the user's and says which; this one has nothing to add."""
