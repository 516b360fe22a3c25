"""Makes the Grafana dashboard of ``deploy/grafana/``."""
