// Command pause is the process of a pod's sandbox: it keeps the pod's namespaces open and does nothing
// else. It ends at the first SIGTERM or SIGINT.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
