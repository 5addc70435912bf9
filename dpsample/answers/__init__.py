"""Answers: releases and fits, what they predict, and how they are saved."""
