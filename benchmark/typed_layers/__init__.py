"""Training steps on minibatches of several node types, and of links."""
