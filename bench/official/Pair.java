import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * One producer and one consumer of the official Java client, a client each.
 *
 * <p>Usage: Pair PORT PAYLOAD_BYTES WINDOW BATCH_MESSAGES WARM_UP_SECONDS SECONDS; one message a batch
 * is none. A message is outstanding until it has come.
 */
public class Pair {
    private static final String TOPIC = "persistent://public/default/bench";
    private static final int NOTHING_FOR_MS = 200;

    private final AtomicLong received = new AtomicLong();
    private final AtomicBoolean ended = new AtomicBoolean();
    private final Semaphore room;

    private Pair(int window) {
        room = new Semaphore(window);
    }

    public static void main(String[] arguments) throws Exception {
        String url = "pulsar://127.0.0.1:" + arguments[0];
        byte[] payload = new byte[Integer.parseInt(arguments[1])];
        int window = Integer.parseInt(arguments[2]);
        int batch = Integer.parseInt(arguments[3]);
        try (PulsarClient to = PulsarClient.builder().serviceUrl(url).build();
                PulsarClient from = PulsarClient.builder().serviceUrl(url).build()) {
            Consumer<byte[]> consumer = from.newConsumer().topic(TOPIC).subscriptionName("pair").subscribe();
            Producer<byte[]> producer = to.newProducer()
                    .topic(TOPIC)
                    .enableBatching(batch > 1)
                    .batchingMaxMessages(batch)
                    .maxPendingMessages(window)
                    .blockIfQueueFull(true)
                    .create();
            new Pair(window).run(producer, consumer, payload, seconds(arguments[4]), seconds(arguments[5]));
        }
        // Threads of the library may outlive it by seconds.
        System.exit(0);
    }

    private static long seconds(String text) {
        return (long) (Double.parseDouble(text) * 1_000);
    }

    private void run(Producer<byte[]> producer, Consumer<byte[]> consumer, byte[] payload, long warmUpMs, long ms)
            throws Exception {
        Thread takes = new Thread(() -> take(consumer));
        Thread sends = new Thread(() -> send(producer, payload));
        takes.start();
        sends.start();
        Thread.sleep(warmUpMs);
        System.out.println(received.get());
        Thread.sleep(ms);
        System.out.println(received.get());
        ended.set(true);
        sends.join();
        takes.join();
    }

    private void send(Producer<byte[]> producer, byte[] payload) {
        try {
            while (!ended.get()) {
                if (room.tryAcquire(NOTHING_FOR_MS, TimeUnit.MILLISECONDS)) {
                    producer.sendAsync(payload).exceptionally(Pair::fail);
                }
            }
        } catch (InterruptedException error) {
            fail(error);
        }
    }

    private void take(Consumer<byte[]> consumer) {
        try {
            while (!ended.get()) {
                Message<byte[]> message = consumer.receive(NOTHING_FOR_MS, TimeUnit.MILLISECONDS);
                if (message != null) {
                    received.incrementAndGet();
                    room.release();
                    consumer.acknowledgeAsync(message).exceptionally(Pair::fail);
                }
            }
        } catch (Exception error) {
            fail(error);
        }
    }

    private static <T> T fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
        return null;
    }
}
