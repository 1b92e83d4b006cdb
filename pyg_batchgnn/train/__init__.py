"""The main job: models, trainer, evaluation, checkpoints, reports and the command line."""
