"""All-to-all and all-reduce over the backends of torch.distributed."""
