"""What reverse mode stores: `remat`, its policies, tables of residuals, and partial evaluation."""
