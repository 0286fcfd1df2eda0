"""Documents that came before, and what joins ask of them."""
