"""Programs run backwards: `inverse`, and `invertible`, whose backward pass reconstructs what it needs."""
