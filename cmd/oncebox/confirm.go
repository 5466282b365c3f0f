package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// confirm asks before something is changed. Without a terminal nobody can answer, and --yes has to be given.
func (s *session) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.asks {
		text := "nobody can answer the question: give --yes"
		if s.running != nil && s.running.Flags().Lookup("dry-run") != nil {
			text += ", or --dry-run to see what would be done"
		}
		return &exitError{exitRefused, errors.New(text + "; nothing was done")}
	}
	fmt.Fprintf(s.errs, "%s [y/N] ", question)
	if s.answers == nil {
		s.answers = bufio.NewReader(s.in) // it may read more than one answer
	}
	line, err := s.answers.ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &exitError{exitRefused, errors.New("nothing was done")}
}
