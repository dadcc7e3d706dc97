"""sushy-tools' emulator with a chosen power delay in place of its random 1 to 11 seconds.

Usage: sushy_fixed.py DELAY_SECONDS --config FILE
"""
import sys
import types

from sushy_tools.emulator.resources.systems import fakedriver

delay = int(sys.argv.pop(1))
fakedriver.random = types.SimpleNamespace(randint=lambda low, high: delay)

from sushy_tools.emulator.main import main  # noqa: E402  (the driver must be changed first)

sys.exit(main())
