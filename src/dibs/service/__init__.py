"""dibs serve: subscriptions, matching and delivery over HTTP.

The contract is the docstring of routes.py, which is also the table that everything is made from: dispatch, roles,
limits, the OpenAPI document and its page. Nothing here decides what matches: that is dibs.Matcher.
"""
