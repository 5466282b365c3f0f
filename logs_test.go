package oncebox_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/logs.md lists each log line about an event or a message with its fields, as the source has them. Each names the id, the type and the topic.
func TestLogLinesAreThoseOfTheSource(t *testing.T) {
	var want []string
	for _, pkg := range []string{"outbox", "inbox", "projector", "messaging", "messaging/memory", "messaging/pulsar"} {
		for _, line := range logLines(t, pkg, within[pkg]...) {
			for _, field := range []string{"id", "type", "topic"} {
				require.Contains(t, line.fields, field, "%s: %s", pkg, line.message)
			}
			want = append(want, fmt.Sprintf("| %s | %s | %s |", pkg, line.message, strings.Join(line.fields, ", ")))
		}
	}
	page, err := os.ReadFile("docs/logs.md")
	require.NoError(t, err)
	listed := regexp.MustCompile(`(?m)^\| [a-z/]+ \| oncebox: .*\|$`).FindAllString(string(page), -1)
	slices.Sort(want)
	require.Equal(t, strings.Join(want, "\n"), strings.Join(listed, "\n"))
	for _, row := range listed {
		for field := range strings.SplitSeq(strings.Split(row, " | ")[2], ", ") {
			field = strings.TrimSuffix(field, " |")
			require.Contains(t, string(page), "\n| `"+field+"` |", "what the field is")
		}
	}
}

// within are the folders whose lines a user takes for those of a package, beside its own.
var within = map[string][]string{
	"outbox":           {"internal/lanedb", "internal/outboxdb"},
	"inbox":            {"inbox/internal/store", "inbox/readmodel", "inbox/state"},
	"messaging/pulsar": {"messaging/pulsar/internal/answer", "messaging/pulsar/internal/topics", "messaging/pulsar/internal/wire"},
}

// logLine is a line of a log: what it says, and its fields in the order of the alphabet.
type logLine struct {
	message string
	fields  []string
}

// logLines returns the lines of some folders that have an id: those of each function that writes one.
func logLines(t *testing.T, folder string, others ...string) (lines []logLine) {
	t.Helper()
	var files []string
	for _, folder := range append([]string{folder}, others...) {
		found, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, found, folder)
		files = append(files, found...)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			messages, fields := map[string]bool{}, map[string]bool{}
			ast.Inspect(decl, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(text, "oncebox: ") {
						messages[regexp.MustCompile(`^(oncebox: [^,:;.]+).*`).ReplaceAllString(text, "$1")] = true
					}
				}
				if call, ok := n.(*ast.CallExpr); ok && writes.MatchString(nameOf(call.Fun)) {
					for _, arg := range call.Args {
						if literal, ok := arg.(*ast.BasicLit); ok && regexp.MustCompile(`^"[a-z_]+"$`).MatchString(literal.Value) {
							fields[strings.Trim(literal.Value, `"`)] = true
						}
					}
				}
				return true
			})
			if !fields["id"] {
				continue
			}
			for message := range messages {
				lines = append(lines, logLine{message, slices.Sorted(maps.Keys(fields))})
			}
		}
	}
	return lines
}

// writes are the functions whose arguments are fields of a log line.
var writes = regexp.MustCompile(`^(Info|Warn|Error|Debug)(Context)?$|^(Log|log|append|String|Int|Duration|Any)$`)

func nameOf(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	default:
		return ""
	}
}
