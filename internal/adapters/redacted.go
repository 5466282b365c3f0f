package adapters

import "regexp"

// Redacted returns a text without the password, if it is a URL with one.
func Redacted(text string) string {
	return regexp.MustCompile(`(//[^/:@]*):.*@`).ReplaceAllString(text, "$1:xxxxx@")
}
