"""Collectives over the backends of torch.distributed."""
