# What clients of Python send when they try again, by themselves or by hand.
import gzip
import json
import os
import time

import httpx
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

url = os.environ["URL"]
data = {"amount": 1, "note": "hello"}


def files():
    return {"file": ("a.txt", b"hello", "text/plain")}


with requests.Session() as s:
    s.mount("http://", HTTPAdapter(max_retries=Retry(total=2, allowed_methods=None, backoff_factor=0.1)))
    for name, body in {"json": {"json": data}, "form": {"data": data}, "files": {"files": files(), "data": {"amount": 1}}}.items():
        key = f"requests-{name}"
        s.post(f"{url}/{key}", headers={"Idempotency-Key": key}, **body)


def by_hand(key, send):
    for _ in range(2):
        try:
            send(f"{url}/{key}", {"Idempotency-Key": key})
        except (requests.RequestException, httpx.HTTPError):
            pass
        time.sleep(1.1)  # gzip has the time of each try


text = json.dumps(data).encode()
by_hand("requests-files-again", lambda url, h: requests.post(url, headers=h, files=files(), data={"amount": 1}))
by_hand("requests-chunks", lambda url, h: requests.post(url, headers={"Content-Type": "application/json", **h}, data=iter([text[:5], text[5:]])))
by_hand("requests-gzip", lambda url, h: requests.post(
    url, headers={"Content-Type": "application/json", "Content-Encoding": "gzip", **h}, data=gzip.compress(text)))
by_hand("httpx-json", lambda url, h: httpx.post(url, headers=h, json=data))
by_hand("httpx-form", lambda url, h: httpx.post(url, headers=h, data=data))
by_hand("httpx-files", lambda url, h: httpx.post(url, headers=h, files=files(), data={"amount": 1}))
