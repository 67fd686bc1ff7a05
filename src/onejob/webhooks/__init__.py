"""Admission webhooks: HTTP callbacks for writes, as configured by users.

`plugins` are the two plugins of dynamic admission, `configurations` reads what users configure,
`reviews` has the protocol, and `calling` sends requests.
"""
