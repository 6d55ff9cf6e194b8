"""What is wrong with the cells of a study, found before the first step of any; `preflight` tries small copies out."""
