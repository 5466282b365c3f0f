package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// Confirm asks the operator before something is changed. Without a terminal there is nobody to ask, and
// --yes is required.
func (s *Session) Confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.Asks {
		text := "the command asks before it acts, but the standard input is not a terminal: give --yes"
		if s.Running != nil && s.Running.Flags().Lookup("dry-run") != nil {
			text += ", or --dry-run to see what would be done"
		}
		return Exit(ExitRefused, errors.New(text+"; nothing was done"))
	}
	fmt.Fprintf(s.Errs, "%s [y/N] ", question)
	if s.answers == nil {
		s.answers = bufio.NewReader(s.In) // kept for the next question, because it may read more than one line
	}
	line, err := s.answers.ReadString('\n')
	// Only a complete line with y or yes is consent. The end of the input is not: a script without an
	// answer must change nothing.
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return Exit(ExitRefused, errors.New("nothing was done"))
}
