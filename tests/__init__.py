"""The tests of Holdfast; STYLE.md says what each folder holds to."""
