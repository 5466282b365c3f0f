package adapters

import "strings"

// Redacted returns a text without the secrets of the addresses in it: what stands before an @, but for the user of a password. A token stands there
// alone. Where an address cannot be understood, it hides more and not less.
func Redacted(text string) string {
	parts := strings.Split(text, "://")
	for n, part := range parts {
		at := strings.LastIndex(part, "@")
		if at < 0 {
			continue
		}
		shown := ""
		if user, _, hasPassword := strings.Cut(part[:at], ":"); hasPassword {
			shown = user + ":"
		}
		parts[n] = shown + "xxxxx" + part[at:]
	}
	return strings.Join(parts, "://")
}
