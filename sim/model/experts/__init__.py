"""Mixtures of experts: settings, routing, dispatch, grouped products, shared experts."""
