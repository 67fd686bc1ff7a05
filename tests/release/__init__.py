"""Tests of the release artefacts: single file, images, manual pages, bill of materials."""
