"""`python -m afd_dashboards`, the same as `afd dashboards`."""

import sys

from afd_dashboards.command import main

sys.exit(main())
