package uow

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun/schema"
)

// kind is what a literal of bun is to PostgreSQL. It decides how a value becomes that of its column: 1.5 can be stored as an integer, and '1.5' cannot.
type kind byte

const (
	isText    kind = 't' // or NULL: it is read as the column's type
	isBoolean kind = 'b'
	isInteger kind = 'i'
	isNumeric kind = 'n'
	isDefault kind = 'd'
)

// defaultText is how bun and SQL say that the database gives the value.
const defaultText = "DEFAULT"

// placeholder returns what stands for the value in a statement, whose n-th parameter it is.
func (k kind) placeholder(n int) string {
	switch k {
	case isDefault:
		return defaultText
	case isBoolean:
		return fmt.Sprintf("$%d::boolean", n)
	case isInteger:
		return fmt.Sprintf("$%d::bigint", n)
	case isNumeric:
		return fmt.Sprintf("$%d::numeric", n)
	default:
		return fmt.Sprintf("$%d", n)
	}
}

// parameter turns a literal as bun writes it into a parameter. It cannot if the value is something else, such as an expression.
func parameter(f *schema.Field, literal []byte) (arg any, k kind, ok bool) {
	switch text := string(literal); {
	case text == "NULL":
		return nil, isText, true
	case text == defaultText:
		return nil, isDefault, true
	case text == "TRUE" || text == "FALSE":
		return text, isBoolean, true
	case isNumber(text):
		return text, numberKind(f, text), true
	case len(text) < 2 || text[0] != '\'' || text[len(text)-1] != '\'':
		return nil, isText, false
	default:
		quoted := text[1 : len(text)-1]
		if strings.IndexByte(quoted, '\'') < 0 {
			return quoted, isText, true
		}
		text = strings.ReplaceAll(quoted, "''", "'")
		// Two literals with something between them are no literal.
		return text, isText, strings.Count(quoted, "'") == 2*strings.Count(text, "'")
	}
}

func isNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789.") == ""
}

// numberKind is the same for all values of a field, where it can be: each kind makes another statement.
func numberKind(f *schema.Field, text string) kind {
	const certain = len("999999999999999999") // digits of a bigint
	switch goes := f.IndirectType.Kind(); {
	case goes == reflect.Float32, goes == reflect.Float64, strings.Contains(text, "."), len(strings.TrimPrefix(text, "-")) > certain:
		return isNumeric
	default:
		return isInteger
	}
}
