"""What the planners were asked and what they decided, recorded by one version of onejob and asked
of the next: changed decisions show before anybody meets them."""
