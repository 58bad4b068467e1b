"""What setup.cfg cannot say: the schema files live at the top of the checkout, beside the package."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["acpserver", "acpserver.*"]), "acpserver.schema"],
    package_dir={"acpserver.schema": "schema"},
)
