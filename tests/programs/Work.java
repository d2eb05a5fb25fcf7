/* SPDX-License-Identifier: Apache-2.0 */
public class Work {
    public static void main(String[] arguments) throws Exception {
        java.util.List<byte[]> list = new java.util.ArrayList<>();
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> { for (int k = 0; k < 1000; k++) new String(new byte[1000]); });
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        for (int i = 0; i < 200; i++) list.add(new byte[10000]);
        System.out.println("blocks " + list.size());
        System.exit(5);
    }
}
