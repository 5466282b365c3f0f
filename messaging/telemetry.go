package messaging

import "github.com/oncebox/oncebox/telemetry"

// Observed is a broker that logs, traces or measures. It is connected before the application is made, and is told then where its telemetry goes,
// as far as its own configuration does not say so. What it traces and measures before that goes to the global providers.
type Observed interface {
	Observe(t telemetry.Config)
}
