package migrations_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No table or column is made that no program reads. Statements name what they read as "{schema}.name". The two names of
// this package stand in the files and in its own statements.
func TestEverythingThatIsMadeIsRead(t *testing.T) {
	comment, made := regexp.MustCompile(`--[^\n]*`), regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?(TABLE|VIEW|SEQUENCE|FUNCTION) (\w+)`)
	var source strings.Builder
	kinds := map[string]string{}
	for _, name := range files(t) {
		sql := comment.ReplaceAllString(text(t, name), "")
		source.WriteString(sql)
		for _, m := range made.FindAllStringSubmatch(sql, -1) {
			require.Empty(t, kinds[m[2]], "%s is made twice, or is one name for two functions", m[2])
			kinds[m[2]] = m[1]
		}
	}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		source.Write(code)
		return err
	}))
	require.Greater(t, len(kinds), 40)
	for name, kind := range kinds {
		if name == "oncebox_add" {
			continue // it is for writers that are not ours
		}
		reader := regexp.MustCompile(`\{schema\}\.` + name + `\b`)
		switch {
		case strings.HasPrefix(name, "oncebox_"):
			reader = regexp.MustCompile(`SELECT ` + name + `\(|FROM %s\.` + name + `|\{schema\}\.` + name + `\b|(\+ "|%s)\.` + name + `\(`)
		case kind == "SEQUENCE":
			reader = regexp.MustCompile(`\{schema\}\.` + name + `\b|nextval\('` + name + `'\)`)
		case name == "outbox_adopted": // package adopt finds the schema by itself
			reader = regexp.MustCompile(`FROM %s\.` + name + `\b`)
		}
		require.True(t, reader.MatchString(source.String()), "nothing reads %s %s", kind, name)
	}
}

// A service that needs one family may apply its file alone.
func TestFamiliesNeedNoOther(t *testing.T) {
	ours := regexp.MustCompile(`\b(outbox|inbox|idempotency|oncebox)(_\w+)?\b`)
	for _, name := range files(t) {
		_, family, _ := strings.Cut(strings.TrimSuffix(name, ".up.sql"), "_")
		for line := range strings.Lines(text(t, name)) {
			code, _, _ := strings.Cut(line, "--")
			for _, m := range ours.FindAllStringSubmatch(code, -1) {
				require.Contains(t, []string{family, "oncebox"}, m[1], "%s: %s", name, line)
			}
		}
	}
}
