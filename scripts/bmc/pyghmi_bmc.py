"""A BMC on pyghmi's server side, bound to one loopback address.

Usage: pyghmi_bmc.py PORT SUITE   (SUITE 3 is pyghmi as it comes; 17 is taught to it below)

The account is admin / secret. Power follows a request after a short delay, so that "accepted" and "done"
differ. The boot device is remembered and read back.
"""
import hashlib
import hmac
import struct
import sys
import threading
import types

import pyghmi.ipmi.bmc as bmc
import pyghmi.ipmi.private.serversession as serversession
from pyghmi.ipmi.private import constants

PORT, SUITE = int(sys.argv[1]), int(sys.argv[2])
DELAY = 0.3


def teach_suite_17():
    """RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128 instead of the SHA-1 family."""
    serversession.hashlib = types.SimpleNamespace(
        sha1=hashlib.sha256, sha256=hashlib.sha256, md5=hashlib.md5)
    original = serversession.ServerSession.create_open_session_response

    def open_response(self, request):
        response = original(self, request)
        algorithms = len(response) - 24
        response[algorithms + 4] = 3
        response[algorithms + 12] = 4
        self.currhashlen = 16
        return response

    def send_rakp4(self, tag, status):
        payload = bytearray([tag, status, 0, 0]) + self.clientsessionid
        known = bytes(self.Rm) + bytes(self.managedsessionid) + bytes(self.uuiddata)
        payload += hmac.new(self.sik, known, hashlib.sha256).digest()[:16]
        self.send_payload(payload, constants.payload_types['rakp4'], retry=False)
        self.confalgo, self.integrityalgo, self.sequencenumber = 'aes', 'sha256', 1
        self.sessionid = struct.unpack('<I', bytes(self.clientsessionid))[0]

    serversession.ServerSession.create_open_session_response = open_response
    serversession.ServerSession._send_rakp4 = send_rakp4


class Machine(bmc.Bmc):
    power = 'off'
    boot = 'default'

    def _later(self, state):
        threading.Timer(DELAY, lambda: setattr(self, 'power', state)).start()

    def get_power_state(self):
        return self.power

    def power_on(self):
        self._later('on')

    def power_off(self):
        self._later('off')

    def power_shutdown(self):
        self._later('off')

    def power_reset(self):
        pass

    def power_cycle(self):
        pass

    def cold_reset(self):
        return 0

    def get_boot_device(self):
        return self.boot

    def set_boot_device(self, device):
        self.boot = device


if SUITE == 17:
    teach_suite_17()
elif SUITE != 3:
    sys.exit('pyghmi_bmc.py: the suite is 3 or 17')
Machine({'admin': 'secret'}, PORT, address='::ffff:127.0.0.1').listen()
