package doctor

import "fmt"

// Severity says what a finding means for the service.
type Severity string

const (
	// Problem loses, doubles or stops events, or will do so.
	Problem Severity = "problem"
	// Warning costs speed or certainty.
	Warning Severity = "warning"
	// Unknown could not be checked.
	Unknown Severity = "unknown"
)

// Finding is something that is not as it should be.
type Finding struct {
	// Check is the name of the check, which stays the same.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Problem says what is wrong, with the names and values that it is about.
	Problem string `json:"problem"`
	// Mend says what to do: a statement, a variable, a command.
	Mend string `json:"mend"`
}

func finding(check string, severity Severity, mend, format string, args ...any) Finding {
	return Finding{Check: check, Severity: severity, Problem: fmt.Sprintf(format, args...), Mend: mend}
}
