package configdoc

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	statement = regexp.MustCompile(`(?s)^(.*?)\s*\bDefault:\s+(.*?)\.(\s+[A-Z].*)?$`)
	link      = regexp.MustCompile(`\[([\w.]+)\]`)
	minusOne  = regexp.MustCompile(`(^|[\s(])-1\b`)
	variable  = regexp.MustCompile(`\bONCEBOX_[A-Z_]*[A-Z]\b`)
	off       = regexp.MustCompile(`^With (0 and )?-1 `)
	ending    = regexp.MustCompile(`\. [A-Z]`) // the end of a sentence, and the beginning of the next one
	literal   = regexp.MustCompile(`[\w.]+( [MK]iB)?`)
)

// shortSentence is the length from which a sentence about -1 stands below the table.
const shortSentence = 130

// required stands in place of a default for a field that must be set.
const required = "required"

// split divides the comment of a field into its meaning and the stated default, "" if it states none.
func split(text string) (meaning, stated string) {
	text = strings.Join(strings.Fields(text), " ")
	if m := statement.FindStringSubmatch(text); m != nil {
		return m[1] + m[3], m[2]
	}
	if strings.Contains(text, "Required") {
		return strings.TrimSuffix(text, " Required."), required
	}
	return text, ""
}

// sentences returns the first sentence of a field's comment without the name of the field, the sentence about -1, and the others. All are for Markdown.
func sentences(field, text string) (first, minus, rest string) {
	text = strings.Join(strings.Fields(text), " ")
	var others []string
	for at := ending.FindStringIndex(text); at != nil; at = ending.FindStringIndex(text) {
		others = append(others, text[:at[0]+1])
		text = text[at[1]-1:]
	}
	others = append(others, text)
	first, others = others[0], others[1:]
	for _, begin := range []string{field + " is ", field + " are ", field + " "} {
		if after, named := strings.CutPrefix(first, begin); named {
			first = strings.ToUpper(after[:1]) + after[1:]
			break
		}
	}
	for i, one := range others {
		if off.MatchString(one) && len(one) < shortSentence {
			minus = one
			others = slices.Delete(others, i, i+1)
			break
		}
	}
	return prose(first), prose(minus), prose(strings.Join(others, " "))
}

// prose returns a comment as Markdown for a cell of a table.
func prose(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	text = strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(text)
	text = link.ReplaceAllString(text, "`$1`")
	text = minusOne.ReplaceAllString(text, "$1`-1`")
	return variable.ReplaceAllString(text, "`$0`")
}

// defaultCell returns the cell with a field's default. It returns an error if the comment states another
// default than WithDefaults sets.
func defaultCell(stated string, value reflect.Value, varies bool) (string, error) {
	switch {
	case stated == "":
		return "", errors.New(`the comment says neither "Default: " nor "Required"`)
	case stated == required:
		if !value.IsZero() && !varies {
			return "", fmt.Errorf("the comment says Required, and the code gives it %v", value)
		}
		return required, nil
	case varies:
		return prose(stated), nil
	}
	code, agrees := compare(stated, value)
	if !agrees {
		return "", fmt.Errorf("the comment says %q, and the code gives it %v", stated, value)
	}
	rest, begins := strings.CutPrefix(stated, code)
	switch {
	case stated == `""`:
		return "empty", nil
	case code == "":
		return prose(stated), nil
	case strings.Trim(stated, `"`) == code:
		return "`" + code + "`", nil
	case begins:
		return "`" + code + "`" + strings.TrimSuffix(rest, strings.TrimLeft(rest, " ")) + prose(rest), nil
	default:
		return "`" + code + "` (" + prose(stated) + ")", nil
	}
}

// compare returns the value as the text of an environment variable, "" if it has no such text, and whether
// the comment states this value.
func compare(stated string, value reflect.Value) (code string, agrees bool) {
	switch v := value.Interface().(type) {
	case time.Duration:
		return short(v), says(stated, func(text string) bool {
			d, err := time.ParseDuration(text)
			return err == nil && d == v
		})
	case []string:
		if len(v) == 0 {
			return "", isNone(stated)
		}
		for _, one := range v {
			agrees = strings.Contains(stated, one)
			if !agrees {
				return "", false
			}
		}
		return strings.Join(v, ","), true
	}
	switch value.Kind() {
	case reflect.Bool:
		code = strconv.FormatBool(value.Bool())
		return code, strings.HasPrefix(stated, code)
	case reflect.Int, reflect.Int16, reflect.Int64:
		return strconv.FormatInt(value.Int(), 10), says(stated, func(text string) bool { return bytesOf(text) == value.Int() })
	case reflect.String:
		if value.Len() == 0 {
			return "", isNone(stated)
		}
		return value.String(), strings.Contains(stated, value.String())
	case reflect.Func:
		if value.IsNil() {
			return "", !link.MatchString(stated)
		}
		name := runtime.FuncForPC(value.Pointer()).Name()
		return "", strings.Contains(stated, "["+name[strings.LastIndex(name, ".")+1:]+"]")
	default: // values that only a program can make, such as a logger
		return "", value.IsZero()
	}
}

// isNone reports whether a comment states an empty default: "", none, or how the value is found if it is empty.
func isNone(stated string) bool {
	first, _, words := strings.Cut(stated, " ")
	return stated == `""` || strings.TrimSuffix(first, ",") == "none" || words && !strings.HasPrefix(stated, `"`)
}

// says reports whether one of the values quoted in a comment fits.
func says(stated string, fits func(string) bool) bool {
	for _, text := range literal.FindAllString(stated, -1) {
		if fits(text) || fits("-"+text) && strings.Contains(stated, "-"+text) {
			return true
		}
	}
	return false
}

// bytesOf parses "5000", "1 MiB" and "4 KiB". For any other text it returns -2, which no field has as its default.
func bytesOf(text string) int64 {
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return -2
	}
	return n * map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
}

// short formats a duration without zeros at its end: 168h and not 168h0m0s.
func short(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
