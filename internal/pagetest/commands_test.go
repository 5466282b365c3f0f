package pagetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/shlex"
	"github.com/stretchr/testify/require"
)

// Each call of make and go on a page names what exists: a target, a program with its flags, a test. The commands of oncebox itself are tried in
// cmd/oncebox/command.
func TestCommandsOfPagesExist(t *testing.T) {
	t.Chdir("../..")
	tried := 0
	for page, text := range Pages(t, ".") {
		for _, line := range shellLines(text) {
			if (page == "docs/two-services.md" || page == "README.md") && strings.HasPrefix(line, "curl ") {
				continue // a test of examples/twoservices or internal/newcomer sends it
			}
			fault, known := faultOf(t, line)
			if known {
				tried++
			}
			if fault != "" {
				t.Errorf("%s: %q: %s", page, line, fault)
			}
		}
	}
	require.Greater(t, tried, 60)
}

func TestWrongCommandsAreFound(t *testing.T) {
	t.Chdir("../..")
	page := "Run `make tset`.\n\n" +
		"```sh\n$ SEED=1 go run ./examples/fivesteps -serves   # a comment\nmake test | tee out && go run ./examples/sixsteps\n```\n\n" +
		"`go run -C bench . comit -rounds 5`, `go test ./uow -run TestModels`, `go install github.com/oncebox/oncebox/cmd/onebox@latest`"
	var faults []string
	for _, line := range shellLines(page) {
		fault, known := faultOf(t, line)
		require.True(t, known, line)
		faults = append(faults, fault)
	}
	require.Equal(t, []string{
		"no program of examples/fivesteps has a flag -serves", "", "there is no program examples/sixsteps", "the Makefile has no target tset",
		"the program bench knows no comit", "uow has no test TestModels", "there is no program cmd/onebox",
	}, faults)
}

// shellLines are the calls of make, go and curl on a page.
func shellLines(page string) (lines []string) {
	for _, line := range Lines(page, `((?:make|go|curl) .+)`) {
		lines = append(lines, strings.TrimSuffix(line, " &"))
	}
	return lines
}

// faultOf says what is wrong with a command. known is false for commands that it cannot judge.
func faultOf(t *testing.T, line string) (fault string, known bool) {
	t.Helper()
	words, err := shlex.Split(line)
	require.NoError(t, err, line)
	switch {
	case words[0] == "make":
		makefile, err := os.ReadFile("Makefile")
		require.NoError(t, err)
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(words[1]) + `:`).Match(makefile) {
			return "the Makefile has no target " + words[1], true
		}
		return "", true
	case words[0] == "curl":
		return "no test sends this request: see pagetest.Request", true
	case len(words) < 3 || words[1] != "run" && words[1] != "test" && words[1] != "install":
		return "", false // go mod, go vet
	}
	folder, arguments := ".", words[2:]
	if arguments[0] == "-C" {
		folder, arguments = arguments[1], arguments[2:]
	}
	for words[1] == "test" && len(arguments) > 1 && strings.HasPrefix(arguments[0], "-") {
		arguments = arguments[2:] // -tags nightly
	}
	if len(arguments) == 0 {
		return "", false // of no package
	}
	place, _, _ := strings.Cut(strings.TrimPrefix(arguments[0], "github.com/oncebox/oncebox/"), "@")
	folder = filepath.Join(folder, place)
	if folder == "." {
		return "", false // a program of the reader
	}
	if words[1] == "test" {
		return faultOfTest(folder, arguments[1:]), true
	}
	return faultOfProgram(folder, arguments[1:]), true
}

func faultOfTest(folder string, arguments []string) string {
	source := sourcesOf(folder)
	for i, argument := range arguments {
		name, _, _ := strings.Cut(strings.Trim(argument, "^$"), "/")
		if i > 0 && arguments[i-1] == "-run" && name != "TestX" && !strings.Contains(source, "\nfunc "+name+"(") {
			return folder + " has no test " + name
		}
	}
	return ""
}

// faultOfProgram looks for flags and first words as texts in the program, and in the packages of its folder and below it.
func faultOfProgram(folder string, arguments []string) string {
	source := sourcesOf(folder)
	if !strings.Contains(source, "package main\n") {
		return "there is no program " + folder
	}
	for i, argument := range arguments {
		name, isFlag := strings.CutPrefix(argument, "-")
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch {
		case isFlag && !strings.Contains(source, `"`+name+`"`):
			return "no program of " + folder + " has a flag -" + name
		case !isFlag && i == 0 && !strings.Contains(source, `"`+name+`"`):
			return "the program " + folder + " knows no " + name
		}
	}
	return ""
}

// sourcesOf are the Go files of a folder and of the folders below it, and of the packages of this repository that they import.
func sourcesOf(folder string) string {
	var all strings.Builder
	imported := regexp.MustCompile(`"github.com/oncebox/oncebox/([\w/.-]+)"`)
	folders := []string{folder}
	_ = filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != folder {
			folders = append(folders, path)
		}
		return nil
	})
	for i := 0; i < len(folders); i++ {
		files, _ := filepath.Glob(filepath.Join(folders[i], "*.go")) // the pattern is good
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			all.Write(text)
			if i == 0 {
				for _, found := range imported.FindAllStringSubmatch(string(text), -1) {
					folders = append(folders, found[1])
				}
			}
		}
	}
	return all.String()
}
