package history

import "strings"

// Statement is the statement of [Read], without a schema.
var Statement = strings.ReplaceAll(read, "{schema}.", "")
