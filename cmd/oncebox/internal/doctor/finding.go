package doctor

import "github.com/oncebox/oncebox/messaging/diagnosis"

// Finding is one fault, with the way to mend it. Faults of the broker and of everything else have the same form.
type Finding = diagnosis.Finding

// The severities, see package diagnosis.
const (
	Problem = diagnosis.Problem
	Warning = diagnosis.Warning
	Unknown = diagnosis.Unknown
)

func finding(check string, severity diagnosis.Severity, mend, format string, args ...any) Finding {
	return diagnosis.Find(check, severity, mend, format, args...)
}
