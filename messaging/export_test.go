package messaging

// Pause stops the flow of messages to a consumer without a loop.
func (c *Consumer) Pause() { c.setPaused(true) }

// Resume ends the pause.
func (c *Consumer) Resume() { c.setPaused(false) }
