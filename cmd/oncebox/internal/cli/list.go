package cli

import "fmt"

// List prints the items of a list: a table with a row for each, or one JSON document. For an empty list it prints the
// sentence none to stderr, so that a pipe gets nothing.
func List[T any](s *Session, list []T, none string, header []string, row func(*T) []string) error {
	if s.JSON {
		return s.Document(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(s.Errs, none)
		return nil
	}
	rows := make([][]string, len(list))
	for n := range list {
		rows[n] = row(&list[n])
	}
	return s.Table(header, rows)
}

// Each prints items that take several lines each, with an empty line between them, or one JSON document
// with all of them.
func Each[T any](s *Session, list []T, item func(*Session, *T) error) error {
	if s.JSON {
		return s.Document(list)
	}
	for n := range list {
		if n > 0 {
			fmt.Fprintln(s.Out)
		}
		if err := item(s, &list[n]); err != nil {
			return err
		}
	}
	return nil
}
