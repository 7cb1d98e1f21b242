#!/usr/bin/env python3
"""Serves a directory as a bucket of S3 on this machine until it is killed: bucket.py BUCKET DIR. Says its port."""

import logging
import os
import sys

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
bucket, root = sys.argv[1:]
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
s3 = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{port}",
    region_name="us-east-1",
    aws_access_key_id="somebody",
    aws_secret_access_key="a-secret-key",
)
s3.create_bucket(Bucket=bucket)
for folder, _, files in os.walk(root):
    for name in files:
        path = os.path.join(folder, name)
        s3.upload_file(path, bucket, os.path.relpath(path, root))
print(port, flush=True)
# Whoever started it holds the other end.
sys.stdin.read()
