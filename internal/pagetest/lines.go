package pagetest

import (
	"regexp"
	"strings"
)

var (
	block = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	span  = regexp.MustCompile("`([^`]+)`")
)

// Lines returns the command lines of a page: its code spans, and the lines of its blocks for a shell, without prompt, variables, comment, pipe and
// redirection. command matches the lines to return from their first word to their end; its first group is the part that is returned.
func Lines(page, command string) (lines []string) {
	line := regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*` + command + `$`)
	add := func(text string) {
		text, _, _ = strings.Cut(text, " #")
		for part := range strings.SplitSeq(text, " && ") {
			part, _, _ = strings.Cut(part, " | ")
			part, _, _ = strings.Cut(part, " > ")
			if found := line.FindStringSubmatch(strings.TrimSpace(part)); found != nil {
				lines = append(lines, found[1])
			}
		}
	}
	rest := block.ReplaceAllStringFunc(page, func(fenced string) string {
		kind, text, _ := strings.Cut(strings.TrimPrefix(fenced, "```"), "\n")
		if kind == "sh" || kind == "console" {
			for line := range strings.Lines(text) {
				add(line)
			}
		}
		return ""
	})
	for _, s := range span.FindAllStringSubmatch(rest, -1) {
		add(strings.Join(strings.Fields(s[1]), " "))
	}
	return lines
}
