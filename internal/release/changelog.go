package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	unreleasedHeading = regexp.MustCompile(`(?m)^## \[Unreleased\][ \t]*\n`)
	anyHeading        = regexp.MustCompile(`(?m)^## `)
	anEntry           = regexp.MustCompile(`(?m)^\s*[-*] `)
)

// closeUnreleased gives the section Unreleased of a changelog the version and the date of a release, and puts an empty section Unreleased before it.
func closeUnreleased(changelog, version string, when time.Time) (string, error) {
	section, err := unreleasedSection(changelog)
	if err != nil {
		return "", err
	}
	if !anEntry.MatchString(section) {
		return "", errors.New(`the section "## [Unreleased]" of CHANGELOG.md has no entry: write down what the release brings`)
	}
	heading := fmt.Sprintf("## [Unreleased]\n\n## [%s] - %s\n", strings.TrimPrefix(version, "v"), when.Format(time.DateOnly))
	at := unreleasedHeading.FindStringIndex(changelog)
	return changelog[:at[0]] + heading + changelog[at[1]:], nil
}

// unreleasedSection returns the text of the section Unreleased, without its heading.
func unreleasedSection(changelog string) (string, error) {
	at := unreleasedHeading.FindStringIndex(changelog)
	if at == nil {
		return "", errors.New(`CHANGELOG.md has no section "## [Unreleased]"`)
	}
	rest := changelog[at[1]:]
	if next := anyHeading.FindStringIndex(rest); next != nil {
		rest = rest[:next[0]]
	}
	return rest, nil
}

// breaking returns the parts "Changed" and "Removed" of a section, where a reader looks for what breaks his program.
func breaking(section string) string {
	var parts strings.Builder
	for part := range strings.SplitSeq("\n"+section, "\n### ") {
		if strings.HasPrefix(part, "Changed") || strings.HasPrefix(part, "Removed") {
			parts.WriteString(part)
		}
	}
	return parts.String()
}
