package messaging

import "github.com/oncebox/oncebox/telemetry"

// Observed is a broker that logs, traces or measures. It is connected before the application is made. The application then calls Observe to
// set where its telemetry goes, unless the broker's own configuration says so. Earlier traces and metrics go to the global providers.
type Observed interface {
	Observe(t telemetry.Config)
}
