"""The one kind of error that the main job raises for a mistake of the user's."""


class TrainError(ValueError):
    """A configuration, run folder or checkpoint that cannot be used; the message is one line."""
