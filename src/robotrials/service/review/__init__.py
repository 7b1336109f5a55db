"""The review page: what the detector could not settle, marked by a person who sees the film."""

from robotrials.service.review.pages import create_review

__all__ = ['create_review']
