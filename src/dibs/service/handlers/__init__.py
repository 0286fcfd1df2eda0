"""What the routes do: each is a function from a Call to an Answer, in the order of routes.py."""
