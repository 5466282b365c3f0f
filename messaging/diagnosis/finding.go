package diagnosis

import "fmt"

// Severity is what a finding means for the service.
type Severity string

const (
	// Problem is a fault that loses, doubles or stops events, or will do so.
	Problem Severity = "problem"
	// Warning is a fault that makes the service slower, or a guarantee weaker, or a state that may be a mistake.
	Warning Severity = "warning"
	// Unknown means that a check failed, so that nothing is known about its subject.
	Unknown Severity = "unknown"
)

// The checks of an [Examiner].
const (
	// Connection is the check whether the service reaches the broker.
	Connection = "connection"
	// Broker is the check of what the broker does with the topics.
	Broker = "broker"
)

// Finding is one fault, with the way to mend it.
type Finding struct {
	// Check is the name of the check: of an [Examiner] Connection or Broker. Scripts use it, so it never changes.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Problem is what is wrong, with the names and values concerned.
	Problem string `json:"problem"`
	// Mend is what to do: a statement, a variable or a command.
	Mend string `json:"mend"`
}

// Find makes a finding; format and args are its Problem.
func Find(check string, severity Severity, mend, format string, args ...any) Finding {
	return Finding{Check: check, Severity: severity, Problem: fmt.Sprintf(format, args...), Mend: mend}
}
