package oncebox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the documentation shows must compile: every Go block of the README and of docs is a piece of an example.
func TestDocumentationIsCompiled(t *testing.T) {
	var sources strings.Builder
	pages := []string{"README.md"}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md"):
			pages = append(pages, path)
		case strings.HasSuffix(path, "example_test.go"), strings.HasPrefix(path, "examples/") && strings.HasSuffix(path, ".go"),
			strings.HasSuffix(path, "conformance_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sources.WriteString(flat(string(text)))
		}
		return nil
	}))
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		shown += len(goBlocks(string(text)))
		for _, code := range uncompiled(sources.String(), string(text)) {
			t.Errorf("a block of %s is not in any example:\n%s", page, code)
		}
	}
	require.Greater(t, shown, 50)
}

func TestBlockWithoutAnExampleIsFound(t *testing.T) {
	const page = "# Page\n\n```go\nu.Save(ctx, w)\nu.Add(e)\n```\n\n1. Point\n\n   ```go\n   u.Sav(ctx, w)\n   ```\n\n```sh\nmake test\n```\n"
	require.Equal(t, []string{"   u.Sav(ctx, w)\n   "}, uncompiled(flat("\tif ok {\n\t\tu.Save(ctx, w)\n\n\t\tu.Add(e)\n\t}\n"), page))
}

// goBlocks are the Go blocks of a page.
func goBlocks(page string) (all []string) {
	for i, part := range strings.Split(page, "```") {
		if code, isGo := strings.CutPrefix(part, "go\n"); isGo && i%2 == 1 {
			all = append(all, code)
		}
	}
	return all
}

// uncompiled are the Go blocks of a page that no example has. sources are the examples, flat.
func uncompiled(sources, page string) (all []string) {
	for _, code := range goBlocks(page) {
		if !strings.Contains(sources, flat(code)) {
			all = append(all, code)
		}
	}
	return all
}

// Every test that a page names exists, and is run by make test unless the page says (nightly). A name without a package is
// one of the root's.
func TestNamedTestsExist(t *testing.T) {
	for _, page := range []string{"docs/testing.md", "README.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		named := regexp.MustCompile("`(?:([a-z/]+)\\.)?(Test\\w+)(?:/[^`]*)?`( \\(nightly)?").FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, named, page)
		for _, name := range named {
			folder, test, marked := name[1], name[2], name[3] != ""
			source := sourceOf(t, folder, test)
			onlyNightly := strings.HasPrefix(source, "//go:build") && strings.Contains(strings.SplitN(source, "\n", 2)[0], "nightly")
			switch {
			case source == "":
				t.Errorf("%s names %s.%s, which does not exist", page, folder, test)
			case onlyNightly && !marked:
				t.Errorf("%s names %s.%s, which only make nightly runs: add (nightly) to it", page, folder, test)
			case marked && !onlyNightly && !strings.Contains(source, "nightly."):
				t.Errorf("%s says (nightly) of %s.%s, which is the same in make test", page, folder, test)
			}
		}
	}
}

// Every relative link of a page leads to a file or a folder.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range append(prosePages(t), "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		prose := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllString(string(text), "code")
		for _, link := range regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(prose, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), link[1]))
			require.NoError(t, err, "%s links to %s", page, link[1])
		}
	}
}

// Every link to a heading of a page leads to a heading that the page has.
func TestLinksLeadToHeadings(t *testing.T) {
	links, headingsOf := 0, map[string][]string{}
	for _, page := range prosePages(t) {
		prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(readPage(t, page), "")
		for _, link := range regexp.MustCompile(`\]\(([\w./-]*\.md)?#([^)]+)\)`).FindAllStringSubmatch(prose, -1) {
			target := page
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(page), link[1])
			}
			links++
			if headingsOf[target] == nil {
				headingsOf[target] = headings(readPage(t, target))
			}
			require.Contains(t, headingsOf[target], link[2], "%s links to %s", page, link[0])
		}
	}
	require.Greater(t, links, 50)
}

// headings are the names by which a page can be linked to, as GitHub makes them.
func headings(page string) (names []string) {
	page = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(page, "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// A claim of the README links to the file of its test.
func TestClaimsLinkToTheirTests(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	claims := regexp.MustCompile("\\[`[a-z/]+\\.(Test\\w+)`\\]\\(([^)]+)\\)").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, claims)
	for _, claim := range claims {
		source, err := os.ReadFile(claim[2])
		require.NoError(t, err)
		require.Contains(t, string(source), "\nfunc "+claim[1]+"(t *testing.T) {")
	}
}

// sourceOf returns the file that holds a test, "" if there is none.
func sourceOf(t *testing.T, folder, test string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), "\nfunc "+test+"(t *testing.T) {") {
			return string(source)
		}
	}
	return ""
}

// flat drops indentation and empty lines: a block may be a part of a function.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// Each command and each path that CONTRIBUTING.md names exists.
func TestContributingNamesWhatExists(t *testing.T) {
	page, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	commands, paths := 0, 0
	for _, code := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(string(page), -1) {
		if target, is := strings.CutPrefix(code[1], "make "); is {
			commands++
			require.Contains(t, string(makefile), "\n"+target+": ", "the Makefile has no target %s", target)
			continue
		}
		path := regexp.MustCompile(`^([A-Z_]+=1 )?go (run|test|doc -all) \./`).ReplaceAllString(code[1], "")
		if code[1] == "main" || code[1] == "test" {
			continue // a branch, and the end of a name
		}
		paths++
		_, err := os.Stat(path)
		require.NoError(t, err, "CONTRIBUTING.md names %s", path)
	}
	require.GreaterOrEqual(t, commands, 5)
	require.GreaterOrEqual(t, paths, 10)
}
