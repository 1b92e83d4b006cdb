"""The quality of partitions: edge cut and balance by policy, against METIS and KaMinPar."""
