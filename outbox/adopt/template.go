package adopt

import (
	"errors"
	"fmt"
	"strings"
)

// template is a field of a mapping: constants and references in turn.
type template []part

// part is a constant, or a reference to a column if it has one.
type part struct {
	constant string
	column   string
	path     []string // of a value within the column's JSON
}

// single returns the reference of a template that has nothing else, nil for another one.
func (t template) single() *part {
	if len(t) == 1 && t[0].column != "" {
		return &t[0]
	}
	return nil
}

// parseTemplate reads a text with references in braces.
func parseTemplate(text string) (t template, err error) {
	var constant strings.Builder
	flush := func() {
		if constant.Len() > 0 {
			t = append(t, part{constant: constant.String()})
			constant.Reset()
		}
	}
	for text != "" {
		switch {
		case strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "}}"):
			constant.WriteByte(text[0])
			text = text[2:]
		case text[0] == '}':
			return nil, errors.New(`a "}" has no "{" before it: write "}}" for a brace`)
		case text[0] == '{':
			names, rest, err := cutNames(text[1:], '}')
			if err != nil {
				return nil, err
			}
			flush()
			t = append(t, part{column: names[0], path: names[1:]})
			text = rest
		default:
			constant.WriteByte(text[0])
			text = text[1:]
		}
	}
	flush()
	return t, nil
}

// cutNames reads names with dots between them, up to the character end or, if that is 0, to the end of the text. A name may stand in double quotes, as
// in SQL.
func cutNames(text string, end byte) (names []string, rest string, err error) {
	for {
		var name string
		if strings.HasPrefix(text, `"`) {
			if name, text, err = cutQuoted(text[1:]); err != nil {
				return nil, "", err
			}
		} else {
			stop := strings.IndexAny(text, `."{}`)
			if stop < 0 {
				stop = len(text)
			}
			name, text = text[:stop], text[stop:]
		}
		if name == "" {
			return nil, "", errors.New("a name of a column or table is empty")
		}
		names = append(names, name)
		switch {
		case text == "" && end == 0:
			return names, "", nil
		case text == "":
			return nil, "", errors.New(`a "{" has no "}" behind it: write "{{" for a brace`)
		case text[0] == '.':
			text = text[1:]
		case text[0] == end:
			return names, text[1:], nil
		default:
			return nil, "", fmt.Errorf("%q stands behind the name %q: put a name with such characters in double quotes", text[:1], name)
		}
	}
}

// cutQuoted reads a name up to its second quote. Two quotes stand for one.
func cutQuoted(text string) (name, rest string, err error) {
	var b strings.Builder
	for {
		before, behind, ok := strings.Cut(text, `"`)
		if !ok {
			return "", "", errors.New("a name in double quotes does not end")
		}
		b.WriteString(before)
		if !strings.HasPrefix(behind, `"`) {
			return b.String(), behind, nil
		}
		b.WriteByte('"')
		text = behind[1:]
	}
}

// splitTable returns the schema of a table, "" if it has none, and its name.
func splitTable(text string) (schema, name string, err error) {
	if text == "" {
		return "", "", errors.New("is missing: name the table that is to be taken over")
	}
	names, _, err := cutNames(text, 0)
	switch {
	case err != nil:
		return "", "", err
	case len(names) > 2:
		return "", "", fmt.Errorf("%q has more than a schema and a name: put a name with a dot in double quotes", text)
	case len(names) == 1:
		return "", names[0], nil
	default:
		return names[0], names[1], nil
	}
}
